"""What a typed answer is, for drivers whose environments have pydantic."""

from pydantic import BaseModel


class Weather(BaseModel):
    city: str
    degrees: int
