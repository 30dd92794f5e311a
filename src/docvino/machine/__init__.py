"""What a machine is: every probe of it reads through `border`, and is turned into facts here."""
