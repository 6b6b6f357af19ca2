"""ADK's own server, as its documentation deploys it: `get_fast_api_app` and uvicorn.

Called with a port, the folder of the agents and the URL of the sessions.
"""

import sys

import uvicorn
from google.adk.cli.fast_api import get_fast_api_app

port, agents, sessions = sys.argv[1:]
app = get_fast_api_app(
    agents_dir=agents, session_service_uri=sessions, web=False, auto_create_session=True
)
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
