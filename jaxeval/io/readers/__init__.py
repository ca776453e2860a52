"""Other people's files, one module a format: each turns what it holds into Episodes, and says what is doubtful."""
