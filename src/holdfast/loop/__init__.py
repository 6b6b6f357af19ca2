"""How a turn is played: model, tools, model again."""
