"""The read side of the run log: what people see of a run. Nothing here touches a server or a tensor."""
