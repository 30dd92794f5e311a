"""docvino reads documents into Markdown and JSON, locally, through OpenVINO."""

__version__ = "0.1.0"
