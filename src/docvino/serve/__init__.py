"""The HTTP service: one process that holds the models and answers in the shapes that clients know."""
