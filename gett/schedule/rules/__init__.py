"""Rules of legality that main loops share, one sentence each; a main loop's own are beside it in `mainloops`."""
