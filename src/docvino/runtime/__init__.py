"""The stages that run models: orientation, layout, and the readers."""
