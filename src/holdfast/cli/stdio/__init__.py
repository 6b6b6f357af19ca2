"""Commands that speak a protocol over stdin and stdout, for programs that start them."""
