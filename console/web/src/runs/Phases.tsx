/** Where a run's time went, as bars over one scale: waiting, preparing, running. */
import { Stack, Text } from "@mantine/core";
import { duration } from "../ui/format";
import { useNow } from "../ui/When";
import type { Run } from "./RunList";

interface Phase {
  name: string;
  begins: number;
  ends: number;
}

/** The phases that a run has come to; the last one of a live run lasts until now. */
export function phasesOf(run: Pick<Run, "queued_at" | "claimed_at" | "started_at" | "ended_at">, now: number): Phase[] {
  const over = run.ended_at ?? now;
  const claimed = run.claimed_at ?? over;
  const started = run.started_at ?? over;
  const phases = [{ name: "Waiting", begins: run.queued_at, ends: claimed }];
  if (run.claimed_at) phases.push({ name: "Preparing", begins: claimed, ends: started });
  if (run.started_at) phases.push({ name: "Running", begins: started, ends: over });
  // clocks of two machines may differ a little; no phase ends before it begins
  return phases.map((phase) => ({ ...phase, ends: Math.max(phase.begins, phase.ends) }));
}

export function Phases({ run }: { run: Run }) {
  const now = useNow();
  const phases = phasesOf(run, now);
  const from = run.queued_at;
  const length = Math.max(1, ...phases.map((phase) => phase.ends - from));
  return (
    <Stack gap={6} component="ol" className="phases">
      {phases.map((phase) => (
        <li key={phase.name} className="phase">
          <Text size="sm" span>{phase.name}</Text>
          <span className="phase-line">
            <span className="phase-bar" data-phase={phase.name} style={{ insetInlineStart: `${((phase.begins - from) / length) * 100}%`, width: `${Math.max(0.4, ((phase.ends - phase.begins) / length) * 100)}%` }} />
          </span>
          <Text size="sm" span className="phase-time">{duration(phase.ends - phase.begins)}</Text>
        </li>
      ))}
    </Stack>
  );
}
