"""The text decoder as a device runs it: rows of tokens in, logits out, keys and values kept in blocks.

contract.py   what an engine hands to a decoder, and what it gets back (numpy only)
paged.py      many sequences at once: OpenVINO's paged attention over blocks that docvino owns
stateful.py   one sequence at a time: the form that every OpenVINO device has
choose.py     loads the paged form, checks it against the stateful one, and says which was taken
"""
