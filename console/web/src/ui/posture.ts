/** What the state of a gateway means for sandboxes. */
import type { Schemas } from "../api/client";

type Gateway = Pick<Schemas["GatewayView"], "state" | "label">;

/** Whether sandboxes reach what their policies say, and nothing else. */
export function isGood(gateway: Gateway): boolean {
  return gateway.state === "enforcing" && gateway.label === "Private networks blocked";
}

/** What a state that is not well does to sandboxes. */
export function effect(gateway: Gateway): string | null {
  if (isGood(gateway)) return null;
  switch (gateway.state) {
    case "sealed": return "Nothing passes: sandboxes reach nothing until this is mended";
    case "unknown": return "Runs of this machine do not start";
    // no kernel rules, but no link either; unless its operator opened private networks, the proxy keeps them shut
    case "without_enforcement": return gateway.label === "Turned off" ? "Internet sandboxes can reach private networks" : "Internet sandboxes reach the network through the proxy alone";
    default: return "Internet sandboxes can reach private networks";
  }
}
