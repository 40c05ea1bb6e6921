/** What has become of a run: a word and a sign, never a colour alone. */
import { Badge } from "@mantine/core";
import { IconBan, IconCheck, IconClock, IconClockX, IconLoader2, IconPlayerSkipForward, IconQuestionMark, IconX } from "@tabler/icons-react";
import type { ComponentType } from "react";

type Look = [label: string, tone: "good" | "bad" | "plain" | "live", icon: ComponentType<{ size?: number }>];

const LOOKS: Record<string, Look> = {
  queued: ["queued", "plain", IconClock],
  claimed: ["claimed", "live", IconLoader2],
  preparing: ["preparing", "live", IconLoader2],
  running: ["running", "live", IconLoader2],
  succeeded: ["succeeded", "good", IconCheck],
  failed: ["failed", "bad", IconX],
  timed_out: ["timed out", "bad", IconClockX],
  cancelled: ["cancelled", "plain", IconBan],
  skipped: ["skipped", "plain", IconPlayerSkipForward],
  lost: ["lost", "bad", IconQuestionMark],
};

/** States, with what people call them. */
export const STATES = Object.entries(LOOKS).map(([value, [label]]) => ({ value, label }));
const LIVE = ["queued", "claimed", "preparing", "running"];

/** Whether it may still change. */
export function isLive(state: string): boolean {
  return LIVE.includes(state);
}

export function StateBadge({ state }: { state: string }) {
  const [label, tone, Icon] = LOOKS[state] ?? [state, "plain", IconQuestionMark];
  return <Badge variant="outline" className={`state state-${tone}`} leftSection={<Icon size={12} />}>{label}</Badge>;
}
