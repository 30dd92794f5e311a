"""Document -> output. Rendering reads and never changes a document."""
