"""The first run of a vision-language model on a device nobody has tried: every claim asked, one report to send.

asking.py    the steps, on whatever device they are given
decoder.py   what a paged decoder is asked, and what a plain one answers
lines.py     text lines of many widths
report.py    what came of it, as JSON for programs and as Markdown for people
"""

from docvino.bringup.asking import STEPS, bring_up
from docvino.bringup.report import Report, Step, as_markdown, write_report

__all__ = ["STEPS", "Report", "Step", "as_markdown", "bring_up", "write_report"]
