/**
 * What a runner leaves of a run, written where the console keeps it: output, timeline and flows of any kind, however
 * hostile, without a container engine. The console serves meanwhile; SQLite takes two writers.
 */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import type { Console } from "./console";

export interface Seen {
  outcome: "permitted" | "denied" | "failed";
  name?: string;
  address?: string;
  port?: number;
  protocol?: string;
  reason?: string;
  upstream?: string;
  file?: string;
  line?: number;
  up?: number;
  down?: number;
}

export interface Left {
  run: string;
  state: string;
  exit?: number;
  reason?: string;
  message?: string;
  output?: { stream: "stdout" | "stderr"; data: Buffer }[];
  steps?: { kind: string; data: unknown }[];
  flows?: Seen[];
}

const WRITE = `
import base64, json, sqlite3, sys, time
left = json.load(sys.stdin)
store = sqlite3.connect(left["store"], timeout=20)
run, now = left["run"], int(time.time() * 1000)
with store:
    workspace, queued = store.execute("SELECT workspace_id, queued_at FROM runs WHERE id = ?", (run,)).fetchone()
    at = 0
    for piece in left["output"]:
        data = base64.b64decode(piece["data"])
        store.execute("INSERT INTO run_output (run_id, starts, stream, data, at) VALUES (?, ?, ?, ?, ?)", (run, at, piece["stream"], data, now))
        at += len(data)
    for number, step in enumerate(left["steps"], 1):
        store.execute("INSERT INTO run_steps (run_id, seq, at, kind, data) VALUES (?, ?, ?, ?, ?)", (run, number, now, step["kind"], json.dumps(step["data"])))
    sums = {"permitted": 0, "denied": 0, "failed": 0}
    for number, flow in enumerate(left["flows"], 1):
        sums[flow["outcome"]] += 1
        store.execute("INSERT INTO flows (run_id, seq, workspace_id, at, outcome, is_open, door, protocol, name, address, port, upstream, up, down, duration_ms, reason, policy, file, line, times) "
            "VALUES (?, ?, ?, ?, ?, 0, 'tcp', ?, ?, ?, ?, ?, ?, ?, 12, ?, 'p', ?, ?, 1)",
            (run, number, workspace, now, flow["outcome"], flow.get("protocol", "tcp"), flow.get("name"), flow.get("address"), flow.get("port", 443), flow.get("upstream"),
             flow.get("up", 0), flow.get("down", 0), flow.get("reason"), flow.get("file"), flow.get("line")))
    starts = now - now % 10000
    store.execute("INSERT INTO flow_rates (workspace_id, starts, permitted, denied, failed, up, down) VALUES (?, ?, ?, ?, ?, 10, 20) "
        "ON CONFLICT (workspace_id, starts) DO UPDATE SET permitted = permitted + excluded.permitted, denied = denied + excluded.denied, failed = failed + excluded.failed",
        (workspace, starts, sums["permitted"], sums["denied"], sums["failed"]))
    live = left["state"] == "running"
    store.execute("UPDATE runs SET state = ?, exit_code = ?, reason = ?, message = ?, claimed_at = queued_at + 40, started_at = queued_at + 900, ended_at = ?, output_bytes = ?, output_kept = ?, "
        "flows_kept = ?, denied = ? WHERE id = ?",
        (left["state"], left["exit"], left["reason"], left["message"], None if live else max(now, queued + 2000), at, at + 64 * len(left["output"]), len(left["flows"]), sums["denied"], run))
    if live:
        store.execute("UPDATE queue SET state = 'running', runner_id = 'seed', lease_until = ?, output_next = ?, output_kept = ?, flows_kept = ?, denied = ? WHERE run_id = ?",
            (now + 3600000, at, at + 64 * len(left["output"]), len(left["flows"]), sums["denied"], run))
    else:
        store.execute("DELETE FROM queue WHERE run_id = ?", (run,))
`;

/** Writes what became of a run that waits. */
export function leave(console: Console, left: Left): void {
  const input = JSON.stringify({
    exit: null,
    reason: null,
    message: null,
    steps: [],
    flows: [],
    ...left,
    output: (left.output ?? []).map((piece) => ({ stream: piece.stream, data: piece.data.toString("base64") })),
    store: join(console.folder, "state", "console.db"),
  });
  execFileSync("python3", ["-c", WRITE], { input, stdio: ["pipe", "ignore", "inherit"] });
}
