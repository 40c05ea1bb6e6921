/**
 * One stream of what happens for all parts of a page, whoever of them comes and goes: it names all their topics, and goes on
 * where it was when they change. The browser comes back by itself with the number of the last event; where events were
 * missed, everybody is told to ask again.
 */

export interface Happening {
  kind: string;
  topic: string;
  at: number;
  data: unknown;
}

export interface Listener {
  topics: string[];
  /** Each event of the topics; `reset` when some were missed. */
  call: (happening: Happening) => void;
  /** Whoever is signed in may not hear any more. */
  ended: () => void;
}

/** As much of an `EventSource` as it needs. */
export interface Source {
  readonly readyState: number;
  addEventListener: (kind: string, call: (event: MessageEvent<string>) => void) => void;
  close: () => void;
}

/** Kinds that the console tells. An event of another kind says nothing to a page. */
const KINDS = ["run", "job", "state", "output", "flows", "steps"];
/** The state of a source that the server has refused, and that does not come back. */
const CLOSED = 2;

export class Stream {
  readonly #open: (url: string) => Source;
  readonly #listeners = new Set<Listener>();
  #source: Source | undefined;
  #named = "";
  #seen = "";
  #due = false;

  constructor(open: (url: string) => Source) {
    this.#open = open;
  }

  /** Tells a listener from now on, until what this comes to is called. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    this.#soon();
    return () => {
      this.#listeners.delete(listener);
      this.#soon();
    };
  }

  /** Parts of a page come and go together: one look at what all of them want. */
  #soon(): void {
    if (this.#due) return;
    this.#due = true;
    queueMicrotask(() => {
      this.#due = false;
      this.#tune();
    });
  }

  #tune(): void {
    const named = [...new Set([...this.#listeners].flatMap(({ topics }) => topics))].sort().join(",");
    if (this.#source?.readyState === CLOSED) this.#close();
    if (named === this.#named) return;
    const seen = this.#seen;
    this.#close();
    if (named === "") return;
    this.#named = named;
    this.#seen = seen;
    const source = this.#open(`/api/v1/events?topics=${encodeURIComponent(named)}${seen === "" ? "" : `&after=${seen}`}`);
    this.#source = source;
    const all = (happening: Happening) => {
      for (const { topics, call } of [...this.#listeners]) if (happening.kind === "reset" || topics.includes(happening.topic)) call(happening);
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        if (event.lastEventId !== "") this.#seen = event.lastEventId;
        all({ ...(JSON.parse(event.data) as Omit<Happening, "kind">), kind: event.type });
      });
    }
    source.addEventListener("reset", (event) => {
      if (event.lastEventId !== "") this.#seen = event.lastEventId;
      all({ kind: "reset", topic: "", at: Date.now(), data: null });
    });
    source.addEventListener("end", () => {
      this.#close();
      for (const { ended } of [...this.#listeners]) ended();
    });
  }

  #close(): void {
    this.#source?.close();
    this.#source = undefined;
    this.#named = "";
    this.#seen = "";
  }
}
