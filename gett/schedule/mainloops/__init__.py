"""What each main loop is: a module each, which the table `KINDS` has, and generic code asks."""
