"""One turn through a LangGraph graph with its SQLite checkpointer, and a node that answers at once.

Run by `bench/speed/library.py` in an environment of its own. Prints one JSON object a line.
"""

import json
import os
import sqlite3
import sys
import tempfile
import time

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph


def answer(state: MessagesState) -> MessagesState:
    return {"messages": [AIMessage("word " * 6)]}


def measure(history: int, turns: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "peer.db")
        saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
        graph = StateGraph(MessagesState)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        app = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "bench"}}
        past = [
            HumanMessage("hello " * 4) if n % 2 == 0 else AIMessage("hello " * 4)
            for n in range(history)
        ]
        app.invoke({"messages": [*past, HumanMessage("hello")]}, config)
        began = time.process_time()
        for _ in range(turns):
            app.invoke({"messages": [HumanMessage("hello")]}, config)
        return (time.process_time() - began) / turns * 1e6


for history in map(int, sys.argv[2:]):
    cpu_us = measure(history, int(sys.argv[1]))
    print(json.dumps({"history": history, "cpu_us": cpu_us}), flush=True)
