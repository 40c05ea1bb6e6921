/** Output to look at: only the rows in view are drawn, however many there are; search; the newest stays in view. */
import { ActionIcon, Checkbox, Group, Text, TextInput } from "@mantine/core";
import { IconChevronDown, IconChevronUp } from "@tabler/icons-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState, type CSSProperties, type KeyboardEvent } from "react";
import { count } from "../ui/format";
import { pieces, type Style } from "./ansi";
import { search, type Row } from "./buffer";

const ROW_HEIGHT = 19;

interface Props {
  rows: Row[];
  /** Rows that are not here any more. */
  dropped: number;
  /** Whether more may come. */
  live: boolean;
}

export function OutputView({ rows, dropped, live }: Props) {
  const viewport = useRef<HTMLDivElement>(null);
  const [follow, setFollow] = useState(live);
  const [wanted, setWanted] = useState("");
  const [at, setAt] = useState(0);
  const found = useMemo(() => search(rows, wanted), [rows, wanted]);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => viewport.current, estimateSize: () => ROW_HEIGHT, overscan: 20 });
  const current = found[at];
  useEffect(() => {
    if (follow && rows.length > 0) virtual.scrollToIndex(rows.length - 1, { align: "end" });
  }, [follow, rows.length, virtual]);
  useEffect(() => {
    if (current !== undefined) virtual.scrollToIndex(current, { align: "center" });
  }, [current, virtual]);
  const step = (by: number) => {
    setFollow(false);
    if (found.length > 0) setAt((before) => (before + by + found.length) % found.length);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  };
  return (
    <div>
      <Group gap="xs" mb="xs" align="center">
        <TextInput type="search" size="xs" aria-label="Search the output" placeholder="Search the output" value={wanted} onKeyDown={onKey}
          onChange={(event) => {
            setWanted(event.currentTarget.value);
            setAt(0);
            if (event.currentTarget.value !== "") setFollow(false);
          }} />
        <ActionIcon variant="default" aria-label="Previous match" disabled={found.length === 0} onClick={() => step(-1)}><IconChevronUp size={16} /></ActionIcon>
        <ActionIcon variant="default" aria-label="Next match" disabled={found.length === 0} onClick={() => step(1)}><IconChevronDown size={16} /></ActionIcon>
        <Text size="xs" role="status">{wanted === "" ? `${count(rows.length)} lines` : `${found.length === 0 ? 0 : at + 1} of ${count(found.length)}`}</Text>
        {live ? <Checkbox size="xs" label="Follow" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} /> : null}
      </Group>
      {dropped > 0 ? <Text size="xs" c="dimmed">The first {count(dropped)} lines are not shown; the file has them.</Text> : null}
      <div ref={viewport} className="output" tabIndex={0} role="log" aria-label="Output" aria-live="off">
        <div className="output-rows" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            return (
              <div key={item.key} className="output-row" data-stream={row.stream} data-current={item.index === current || undefined}
                style={{ transform: `translateY(${item.start}px)` }}>
                <Line row={row} />
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function Line({ row }: { row: Row }) {
  return (
    <bdi>
      {pieces(row.text, row.style).map((piece, index) => (
        <span key={index} className={classes(piece.style)} style={colours(piece.style)}>{piece.text}</span>
      ))}
    </bdi>
  );
}

function classes(style: Style): string | undefined {
  const names: string[] = [];
  const [foreground, background] = style.inverse ? [style.background, style.foreground] : [style.foreground, style.background];
  if (typeof foreground === "number") names.push(`ansi-${foreground}`);
  if (typeof background === "number") names.push(`ansi-on-${background}`);
  if (style.inverse && foreground === undefined) names.push("ansi-inverse");
  if (style.inverse && background === undefined) names.push("ansi-on-plain");
  for (const name of ["bold", "dim", "italic", "underline"] as const) if (style[name]) names.push(`ansi-${name}`);
  return names.length === 0 ? undefined : names.join(" ");
}

function colours(style: Style): CSSProperties | undefined {
  const [foreground, background] = style.inverse ? [style.background, style.foreground] : [style.foreground, style.background];
  if (typeof foreground !== "string" && typeof background !== "string") return undefined;
  return {
    ...(typeof foreground === "string" ? { color: foreground } : {}),
    ...(typeof background === "string" ? { backgroundColor: background } : {}),
  };
}
