"""What `holdfast db verify` checks, and what it finds."""
