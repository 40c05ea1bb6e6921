/** Calls at most once in a stretch of time, and once more for what came meanwhile: events come faster than answers. */
import { useEffect, useMemo, useRef } from "react";

export function useCalm(call: () => void, every = 500): () => void {
  const latest = useRef(call);
  useEffect(() => {
    latest.current = call;
  });
  const calm = useMemo(() => makeCalm(() => latest.current(), every), [every]);
  useEffect(() => calm.end, [calm]);
  return calm.call;
}

interface Calm {
  call: () => void;
  end: () => void;
}

export function makeCalm(call: () => void, every: number): Calm {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let again = false;
  const go = () => {
    call();
    timer = setTimeout(() => {
      timer = undefined;
      if (again) {
        again = false;
        go();
      }
    }, every);
  };
  return {
    call: () => {
      if (timer === undefined) go();
      else again = true;
    },
    end: () => {
      clearTimeout(timer);
      timer = undefined;
      again = false;
    },
  };
}
