/**
 * The one way to the API: typed by its description, failures as `ApiError` with the problem that the console answered.
 * Owns no state; what is kept of answers is the query cache's.
 */
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Problem = Schemas["Problem"];

/** What the console answered instead of what was asked for. */
export class ApiError extends Error {
  readonly problem: Problem;
  /** The id that the console's log has beside the cause. */
  readonly requestId: string | null;
  /** Seconds after which it may go. */
  readonly retryAfter: number | null;

  constructor(problem: Problem, headers: Headers = new Headers()) {
    super(problem.detail);
    this.name = "ApiError";
    this.problem = problem;
    this.requestId = headers.get("x-request-id");
    const seconds = Number(headers.get("retry-after") ?? Number.NaN);
    this.retryAfter = Number.isFinite(seconds) ? seconds : null;
  }

  /** What is wrong with one field of what was sent. */
  field(name: string): string | undefined {
    return this.problem.fields?.find((wrong) => wrong.field === name)?.message;
  }
}

/** What is wrong with a field, if that is what an error says. */
export function wrongField(error: unknown, name: string): string | undefined {
  return error instanceof ApiError ? error.field(name) : undefined;
}

/** A problem of any failure, for people. */
export function problemOf(error: unknown): Problem {
  if (error instanceof ApiError) return error.problem;
  const detail = error instanceof Error ? error.message : String(error);
  return { status: 0, title: "Error", code: "page_failed", detail, help: "reload the page; if it stays, tell whoever runs this instance" };
}

function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && "code" in body && "detail" in body;
}

/** The problem in an answer that is none of success, whatever stands in its body: a proxy may have written it. */
async function problemIn(response: Response): Promise<Problem> {
  const body: unknown = await response.clone().json().catch(() => null);
  if (isProblem(body)) return body;
  const detail = `the answer was ${response.status} ${response.statusText}, and not the console's own`;
  return { status: response.status, title: response.statusText, code: "no_problem", detail, help: "something between this browser and the console answered" };
}

const signedOut = new Set<() => void>();

/** Calls back when an answer says that nobody is signed in any more. */
export function onSignedOut(call: () => void): () => void {
  signedOut.add(call);
  return () => void signedOut.delete(call);
}

export const api = createClient<paths>({ baseUrl: globalThis.location.origin, credentials: "same-origin" });

api.use({
  async onResponse({ response }) {
    if (response.ok) return;
    const problem = await problemIn(response);
    if (problem.code === "signed_out") signedOut.forEach((call) => call());
    throw new ApiError(problem, response.headers);
  },
  onError({ error }) {
    if (error instanceof ApiError) return error;
    return new ApiError({
      status: 0,
      title: "No answer",
      code: "unreachable",
      detail: "the console does not answer",
      help: "check that `sallyport console` runs and that this browser reaches it; this page asks again by itself",
    });
  },
});

/** The data of an answer; failures were thrown. */
export async function take<T>(answer: Promise<{ data?: T }>): Promise<T> {
  const { data } = await answer;
  return data as T;
}
