"""What is right and wrong on this machine, one check a line: `examine` tells it, `report` makes a file of it."""
