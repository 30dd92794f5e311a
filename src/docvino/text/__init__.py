"""Pure functions on text and geometry: reading order, paragraphs, blocks."""
