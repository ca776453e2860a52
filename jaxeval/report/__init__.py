"""What people read: words, figures, one self-contained HTML. Host only; the only place with mm, degrees and percent."""
