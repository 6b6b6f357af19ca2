"""Two agents in Python: serve them with `holdfast serve shop:team`."""

from holdfast import Agent, Team, model, tool


@tool(read_only=True)  # it changes nothing, so it needs no permission
def opening_hours(day: str = "today") -> str:
    """When the shop is open.

    Args:
        day: A day of the week, or "today".
    """
    return "closed" if day == "sunday" else "9 to 5"


parrot = model("demo/parrot")

desk = Agent(
    "desk",
    parrot,
    description="Answers questions about the shop.",
    instruction="You sit at the front desk. Hand over to the workshop for repairs.",
    tools=(opening_hours,),
    handoffs=("workshop",),
)
workshop = Agent(
    "workshop", parrot, description="Repairs things.", instruction="You repair things."
)

team = Team({"desk": desk, "workshop": workshop}, entry="desk")
