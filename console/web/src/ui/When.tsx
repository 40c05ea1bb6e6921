/** A moment: how long ago, and the moment itself on hover and for screen readers that ask. */
import { useSyncExternalStore } from "react";
import { absolute, relative } from "./format";

const STEP = 10_000;
let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** One clock for every moment on the page. */
function subscribe(listener: () => void): () => void {
  // it stood still while nobody looked
  if (listeners.size === 0) now = Date.now();
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    listeners.forEach((call) => call());
  }, STEP);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time to the last tick, never before something that has just happened. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

export function When({ at }: { at: number | null | undefined }) {
  const tick = useNow();
  if (at === null || at === undefined) return <span>never</span>;
  // the clock ticks every few seconds; what was answered since is not in the future
  const by = at > tick && at - tick < STEP ? at : tick;
  return (
    <time dateTime={new Date(at).toISOString()} title={absolute(at)}>
      {relative(at, by)}
    </time>
  );
}
