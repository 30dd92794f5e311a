"""Between pixels and tensors: for each kind of model, how its input is made and what its output means.

Pure functions of numpy arrays and a model's facts. Nothing here knows a device, a file or a page.
"""
