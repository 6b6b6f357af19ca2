"""Who answers: one protocol, and the providers that speak it."""
