/** Series over time, drawn by uPlot on a canvas; the same numbers stand in a table for who sees no canvas. */
import "uplot/dist/uPlot.min.css";
import { useComputedColorScheme, VisuallyHidden } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { absolute } from "../ui/format";

export interface Series {
  label: string;
  /** Of the light and the dark scheme. */
  colours: [string, string];
  values: number[];
}

interface Props {
  label: string;
  /** Milliseconds since 1970, ascending. */
  times: number[];
  series: Series[];
  height?: number;
  show?: (value: number) => string;
}

export function TimeChart({ label, times, series, height = 180, show = String }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useComputedColorScheme("light") === "dark";
  const names = series.map((one) => one.label).join("|");
  const latest = useRef<uPlot.AlignedData>([[]]);
  latest.current = [times.map((at) => at / 1000), ...series.map((one) => one.values)];
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const made = new uPlot(options(element.clientWidth, height, series, dark, show), latest.current, element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
    // the labels stand for the series; their values are set below without making the plot anew
    // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  }, [names, dark, height]);
  useEffect(() => {
    plot.current?.setData(latest.current);
  });
  return (
    <figure className="chart" aria-label={label}>
      <div ref={place} aria-hidden className="chart-place" />
      <VisuallyHidden>
        <table>
          <caption>{label}</caption>
          <thead>
            <tr><th scope="col">Time</th>{series.map((one) => <th scope="col" key={one.label}>{one.label}</th>)}</tr>
          </thead>
          <tbody>
            {times.slice(-10).map((at, index, last) => (
              <tr key={at}>
                <th scope="row">{absolute(at)}</th>
                {series.map((one) => <td key={one.label}>{show(one.values[times.length - last.length + index] ?? 0)}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </VisuallyHidden>
    </figure>
  );
}

const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

function options(width: number, height: number, series: Series[], dark: boolean, show: (value: number) => string): uPlot.Options {
  const line = dark ? "#3b4046" : "#dee2e6";
  const words = dark ? "#b0b5bb" : "#495057";
  const axis = { stroke: words, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  return {
    width,
    height,
    cursor: { y: false },
    legend: { live: true },
    scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [{ ...axis, values: (_plot, ticks) => ticks.map((at) => HOUR.format(at * 1000)) }, { ...axis, size: 64, values: (_plot, ticks) => ticks.map(show) }],
    series: [
      { label: "Time", value: (_plot: uPlot, at: number | null) => (at === null ? "–" : HOUR.format(at * 1000)) },
      ...series.map((one) => ({
        label: one.label,
        stroke: one.colours[dark ? 1 : 0],
        fill: `${one.colours[dark ? 1 : 0]}22`,
        width: 2,
        value: (_plot: uPlot, value: number | null) => (value === null ? "–" : show(value)),
      })),
    ],
  };
}
