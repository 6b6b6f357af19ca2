"""The sandbox: it confines a command to the files and the network that it was given."""
