/** A run's output as rows: read on from where it was whenever more was printed, in pieces that the page can take. */
import { useCallback, useEffect, useRef, useState } from "react";
import { api, take } from "../api/client";
import { OutputBuffer, type Row } from "./buffer";

export interface Output {
  rows: Row[];
  dropped: number;
  /** Bytes that were printed, and whether some were not kept. */
  total: number;
  truncated: boolean;
  /** Whether all that there is now has come. */
  complete: boolean;
  error: unknown;
}

const NOTHING: Output = { rows: [], dropped: 0, total: 0, truncated: false, complete: false, error: null };

export function useOutput(workspace: string, run: string): { output: Output; more: () => void } {
  const [output, setOutput] = useState<Output>(NOTHING);
  const reading = useRef<{ end: () => void; more: () => void } | null>(null);
  useEffect(() => {
    setOutput(NOTHING);
    const reader = read(workspace, run, setOutput);
    reading.current = reader;
    reader.more();
    return reader.end;
  }, [workspace, run]);
  const more = useCallback(() => reading.current?.more(), []);
  return { output, more };
}

/** Reads one after the other; what is asked for meanwhile is read when that is done. */
function read(workspace: string, run: string, show: (output: Output) => void) {
  const buffer = new OutputBuffer();
  let next = 0;
  let state: "idle" | "reading" | "again" | "over" = "idle";
  const isOver = () => state === "over";
  const pull = async () => {
    for (;;) {
      const answer = await take(api.GET("/api/v1/workspaces/{workspace}/runs/{run}/output", { params: { path: { workspace, run }, query: { from: next } } }));
      if (isOver()) return;
      for (const piece of answer.pieces) buffer.append(piece.stream, unpacked(piece.data, Math.max(0, next - piece.starts)));
      const went = answer.next > next;
      next = answer.next;
      const complete = !went || next >= answer.total;
      show({ rows: buffer.all().slice(), dropped: buffer.dropped, total: answer.total, truncated: answer.truncated, complete, error: null });
      if (complete) return;
    }
  };
  const more = () => {
    if (state === "over") return;
    if (state !== "idle") {
      state = "again";
      return;
    }
    state = "reading";
    pull()
      .catch((error: unknown) => {
        if (!isOver()) show({ ...NOTHING, rows: buffer.all().slice(), dropped: buffer.dropped, error });
      })
      .finally(() => {
        const again = state === "again";
        if (!isOver()) state = "idle";
        if (again) more();
      });
  };
  return { more, end: () => { state = "over"; } };
}

/** The bytes of a piece from one on. */
function unpacked(base64: string, from: number): Uint8Array {
  const text = atob(base64);
  const bytes = new Uint8Array(Math.max(0, text.length - from));
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = text.charCodeAt(from + at);
  return bytes;
}
