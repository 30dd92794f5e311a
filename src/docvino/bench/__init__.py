"""What a machine makes of docvino: figures that others can measure again, in one report.

measure.py   the plan: which figures, in which child processes, put together as one report
child.py     one part of the plan in a process of its own, so that its peak memory is its own
classic.py   models of lines: detection, recognition, requests in flight
vlm.py       vision-language models: vision by patches, prompts by tokens, decoding by sequences
pages.py     whole pages, by stage
starts.py    first and later starts
soak.py      memory over many pages
limits.py    what the machine could do at most
report.py    rows, the report, JSON and Markdown
compare.py   two reports of one machine
chart.py     the report as a picture
corpus.py    the pages that are read, where the user gives none
random_weights.py   a PaddleOCR-VL of the published size that nobody trained
"""
