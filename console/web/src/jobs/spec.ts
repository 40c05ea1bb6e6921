/**
 * A job's definition as its page edits it: every field a text or a switch, so that something half-written can stand there.
 * What is empty is left out of the specification and takes the runner's default. Judging is the console's.
 */
import type { Schemas } from "../api/client";

export type JobSpec = Schemas["JobSpec"];
type Mode = "internet" | "domains" | "none";
export type Rule = "skip" | "queue" | "parallel";
export type NotifyOn = "failed" | "succeeded" | "denied";
export type Retry = "failed" | "timed_out" | "lost";

export interface Draft {
  name: string;
  description: string;
  /** A shell script, or program and arguments on a line each. */
  shell: boolean;
  command: string;
  image: string;
  isolation: "" | "auto" | "hardened" | "gvisor";
  mode: Mode;
  allowPrivate: boolean;
  domains: string[];
  /** Whether a policy's text says what may be reached. */
  ownPolicy: boolean;
  policy: string;
  policyName: string;
  root: boolean;
  timeout: string;
  memory: string;
  cpu: string;
  pids: string;
  env: string;
  workdir: string;
  secrets: string[];
  input: boolean;
  scheduled: boolean;
  cron: string;
  timezone: string;
  catchUp: "once" | "never";
  rule: Rule;
  most: string;
  group: string;
  retries: string;
  retryOn: Retry[];
  retryWait: string;
  /** Who is told: as the workspace asks, or the job's own list. */
  notify: "usual" | "own";
  notifyTo: string[];
  notifyOn: NotifyOn[];
}

export const EMPTY: Draft = {
  name: "",
  description: "",
  shell: true,
  command: "",
  image: "",
  isolation: "",
  mode: "none",
  allowPrivate: false,
  domains: [],
  ownPolicy: false,
  policy: "",
  policyName: "",
  root: false,
  timeout: "",
  memory: "",
  cpu: "",
  pids: "",
  env: "",
  workdir: "",
  secrets: [],
  input: false,
  scheduled: false,
  cron: "",
  timezone: "UTC",
  catchUp: "once",
  rule: "queue",
  most: "",
  group: "",
  retries: "0",
  retryOn: ["failed", "timed_out", "lost"],
  retryWait: "30",
  notify: "usual",
  notifyTo: [],
  notifyOn: ["failed"],
};

const SHELL = ["/bin/sh", "-c"];

/** A number, if one stands there. */
function number(text: string): number | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  const value = Number(trimmed);
  return Number.isFinite(value) ? value : undefined;
}

/** The part of an object that says something. */
function said<T extends object>(all: T): Partial<T> {
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined && value !== "")) as Partial<T>;
}

/** Variables as they are typed, a line each: `NAME=value`. */
export function variables(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    return at === -1 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1)];
  }));
}

/** The specification that a draft means. */
export function toSpec(draft: Draft): JobSpec {
  const cpu = number(draft.cpu);
  return said({
    description: draft.description.trim(),
    command: command(draft),
    image: draft.image.trim(),
    isolation: draft.isolation === "" ? undefined : draft.isolation,
    network: said({
      mode: draft.mode,
      allow_private: draft.mode !== "none" && draft.allowPrivate,
      domains: draft.mode === "domains" && !draft.ownPolicy ? draft.domains : [],
      policy: draft.ownPolicy ? draft.policy : undefined,
      policy_name: draft.ownPolicy ? undefined : draft.policyName.trim(),
    }),
    root: draft.root,
    limits: said({
      timeout_seconds: number(draft.timeout),
      memory_mib: number(draft.memory),
      cpu_millis: cpu === undefined ? undefined : Math.round(cpu * 1000),
      pids: number(draft.pids),
    }),
    env: variables(draft.env),
    workdir: draft.workdir.trim(),
    secrets: draft.secrets,
    input: draft.input,
    schedule: draft.scheduled ? { cron: draft.cron.trim(), timezone: draft.timezone, catch_up: draft.catchUp } : undefined,
    overlap: said({ rule: draft.rule, most: draft.rule === "parallel" ? number(draft.most) : undefined, group: draft.group.trim() }),
    retry: { most: number(draft.retries) ?? 0, on: draft.retryOn, wait_seconds: number(draft.retryWait) ?? 30 },
    notify: draft.notify === "own" ? { to: draft.notifyTo, on: draft.notifyOn } : undefined,
  });
}

function command(draft: Draft): string[] {
  if (draft.command.trim() === "") return [];
  return draft.shell ? [...SHELL, draft.command] : draft.command.split("\n").filter((line) => line !== "");
}

/** The draft of a job that exists. */
export function toDraft(name: string, spec: JobSpec): Draft {
  const { network = {}, limits = {}, schedule, overlap = {}, retry = {}, notify, command: words = [] } = spec;
  // an argument with a line break in it has no line of its own, so only a script shows it whole
  const shell = words.length === 0 || (words.length === 3 && words[0] === SHELL[0] && words[1] === SHELL[1]);
  const text = (value: number | null | undefined) => (value === null || value === undefined ? "" : String(value));
  return {
    ...EMPTY,
    name,
    description: spec.description ?? "",
    shell,
    command: shell ? (words[2] ?? "") : words.join("\n"),
    image: spec.image ?? "",
    isolation: spec.isolation ?? "",
    mode: network.mode ?? "none",
    allowPrivate: network.allow_private ?? false,
    domains: network.domains ?? [],
    ownPolicy: typeof network.policy === "string",
    policy: network.policy ?? "",
    policyName: network.policy_name ?? "",
    root: spec.root ?? false,
    timeout: text(limits.timeout_seconds),
    memory: text(limits.memory_mib),
    cpu: limits.cpu_millis === null || limits.cpu_millis === undefined ? "" : String(limits.cpu_millis / 1000),
    pids: text(limits.pids),
    env: Object.entries(spec.env ?? {}).map(([key, value]) => `${key}=${value}`).join("\n"),
    workdir: spec.workdir ?? "",
    secrets: spec.secrets ?? [],
    input: spec.input ?? false,
    scheduled: schedule !== null && schedule !== undefined,
    cron: schedule?.cron ?? "",
    timezone: schedule?.timezone ?? "UTC",
    catchUp: schedule?.catch_up ?? "once",
    rule: overlap.rule ?? "queue",
    most: text(overlap.most),
    group: overlap.group ?? "",
    retries: text(retry.most ?? 0),
    retryOn: retry.on ?? EMPTY.retryOn,
    retryWait: text(retry.wait_seconds ?? 30),
    notify: notify ? "own" : "usual",
    notifyTo: notify?.to ?? [],
    notifyOn: notify?.on ?? EMPTY.notifyOn,
  };
}
