/** A policy as text: completion from the schema, the console's own mistakes in place. Deciding what is one is the console's. */
import { autocompletion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { linter, lintGutter, type Diagnostic } from "@codemirror/lint";
import { EditorState, type Text } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";
import { useEffect, useRef } from "react";
import { styleNonce } from "../ui/nonce";
import { optionsAt, placeAt, type Schema } from "./complete";

/** A place in a text and what is to be said about it. Lines and columns count from one. */
export interface Remark {
  line: number;
  column: number;
  message: string;
  severity: "error" | "warning";
}

interface Props {
  label: string;
  text: string;
  onChange?: (text: string) => void;
  /** What the console says about a text. */
  check?: (text: string) => Promise<Remark[]>;
  schema?: Schema | undefined;
}

export function PolicyEditor({ label, text, onChange, check, schema }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef({ onChange, check, schema });
  useEffect(() => {
    latest.current = { onChange, check, schema };
  });
  useEffect(() => {
    if (!place.current) return undefined;
    const readOnly = latest.current.onChange === undefined;
    const made = new EditorView({
      parent: place.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          EditorView.cspNonce.of(styleNonce),
          basicSetup,
          yaml(),
          syntaxHighlighting(COLOURS),
          LOOK,
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          readOnly ? [EditorState.readOnly.of(true), EditorView.editable.of(false)] : [
            autocompletion({ override: [(context) => complete(context, latest.current.schema)] }),
            linter(async (asked) => {
              const remarks = (await latest.current.check?.(asked.state.doc.toString())) ?? [];
              return remarks.map((remark) => diagnostic(asked.state.doc, remark));
            }, { delay: 400 }),
            lintGutter(),
            EditorView.updateListener.of((update) => {
              if (update.docChanged) latest.current.onChange?.(update.state.doc.toString());
            }),
          ],
        ],
      }),
    });
    view.current = made;
    return () => {
      made.destroy();
      view.current = null;
    };
    // the text is set below; the editor is made once for a label
    // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  }, [label]);
  useEffect(() => {
    const made = view.current;
    if (made && made.state.doc.toString() !== text) made.dispatch({ changes: { from: 0, to: made.state.doc.length, insert: text } });
  }, [text]);
  return <div ref={place} className="policy-editor" />;
}

/** A remark's place, kept within the text: what was checked may be shorter by now. */
function diagnostic(doc: Text, remark: Remark): Diagnostic {
  const line = doc.line(Math.min(Math.max(1, remark.line), doc.lines));
  const from = Math.min(line.from + Math.max(0, remark.column - 1), line.to);
  return { from, to: from === line.to ? from : line.to, severity: remark.severity, message: remark.message };
}

function complete(context: CompletionContext, schema: Schema | undefined): CompletionResult | null {
  const place = placeAt(context.state.sliceDoc(0, context.pos));
  if (!schema || !place || (place.typed === "" && !context.explicit && place.value === undefined)) return null;
  const options = optionsAt(schema, place);
  if (options.length === 0) return null;
  return {
    from: context.pos - place.typed.length,
    options: options.map((option) => ({ label: option.label, apply: option.insert ?? option.label, info: option.detail })),
  };
}

const COLOURS = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--code-key)" },
  { tag: [tags.string, tags.content], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.keyword], color: "var(--code-word)" },
  { tag: tags.comment, color: "var(--code-comment)", fontStyle: "italic" },
]);

const LOOK = EditorView.theme({
  "&": { backgroundColor: "var(--mantine-color-body)", color: "var(--mantine-color-text)", fontSize: "13px" },
  ".cm-content": { fontFamily: "var(--mantine-font-family-monospace)", caretColor: "var(--mantine-color-text)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--mantine-color-dimmed)", borderRight: "1px solid var(--mantine-color-default-border)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--mantine-color-text) 5%, transparent)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--mantine-primary-color-filled) 30%, transparent)" },
  ".cm-cursor": { borderLeftColor: "var(--mantine-color-text)" },
  ".cm-tooltip": { backgroundColor: "var(--mantine-color-body)", color: "var(--mantine-color-text)", border: "1px solid var(--mantine-color-default-border)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--mantine-primary-color-filled)", color: "#fff" },
  ".cm-panels": { backgroundColor: "var(--mantine-color-body)", color: "var(--mantine-color-text)" },
});
