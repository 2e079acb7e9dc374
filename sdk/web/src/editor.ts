// The editor of a file: CodeMirror, which is loaded when a file is opened. It is in a shadow
// root, since there it styles by constructed sheets, which the page's policy permits.

import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { bracketMatching, HighlightStyle, indentOnInput, StreamLanguage, syntaxHighlighting } from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState, type Extension, RangeSetBuilder, StateEffect, StateField } from '@codemirror/state';
import { Decoration, type DecorationSet, drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';

const theme = EditorView.theme({
  '&': { height: '100%', color: 'var(--ink)', backgroundColor: 'var(--paper)', fontSize: '13px' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.5', overscrollBehavior: 'contain' },
  '.cm-content': { caretColor: 'var(--accent)' },
  '.cm-cursor': { borderLeftColor: 'var(--accent)' },
  '.cm-gutters': { backgroundColor: 'var(--paper)', color: 'var(--soft)', border: 'none' },
  '.cm-lineNumbers .cm-gutterElement': { cursor: 'pointer', padding: '0 10px 0 14px' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in oklab, var(--accent) 6%, transparent)' },
  '.cm-marked': { backgroundColor: 'var(--mark)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'color-mix(in oklab, var(--accent) 28%, var(--paper))' },
  '.cm-specialChar': { color: 'var(--broken)' },
  '.cm-panels': { backgroundColor: 'var(--ground)', color: 'var(--ink)', borderColor: 'var(--line)' },
  '.cm-panel.cm-search': { padding: '6px 30px 6px 8px', fontFamily: 'var(--sans)' },
  '.cm-textfield, .cm-button': { font: 'inherit', fontSize: '13px', color: 'inherit', background: 'var(--paper)', border: '1px solid var(--line)', borderRadius: '6px', padding: '3px 8px' },
  '.cm-searchMatch': { backgroundColor: 'var(--mark)' },
  '.cm-searchMatch-selected': { outline: '1px solid var(--accent)' },
  '.cm-selectionMatch': { backgroundColor: 'color-mix(in oklab, var(--accent) 14%, transparent)' },
  '&.cm-merge-b .cm-changedLine': { backgroundColor: 'color-mix(in oklab, var(--ok) 11%, transparent)' },
  '.cm-deletedChunk': { backgroundColor: 'var(--broken-ground)', color: 'var(--ink)' },
  '.cm-collapsedLines': { background: 'var(--ground)', color: 'var(--soft)' },
  '.cm-matchingBracket': { backgroundColor: 'color-mix(in oklab, var(--accent) 22%, transparent)' },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: 'var(--ansi-5)' },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: 'var(--ansi-2)' },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: 'var(--ansi-3)' },
  { tag: [tags.comment, tags.meta], color: 'var(--soft)', fontStyle: 'italic' },
  { tag: [tags.typeName, tags.className, tags.namespace, tags.tagName], color: 'var(--ansi-6)' },
  { tag: [tags.function(tags.variableName), tags.definition(tags.variableName), tags.propertyName, tags.attributeName], color: 'var(--ansi-4)' },
  { tag: tags.heading, fontWeight: 'bold', color: 'var(--ansi-4)' },
  { tag: [tags.link, tags.url], textDecoration: 'underline' },
  { tag: tags.emphasis, fontStyle: 'italic' },
  { tag: tags.strong, fontWeight: 'bold' },
  { tag: tags.invalid, color: 'var(--broken)' },
]);

/** Languages by the end of the name, or the whole of it; each is loaded when it is needed. */
const languages: [RegExp, () => Promise<Extension>][] = [
  [/\.([cm]?[jt]sx?)$/, async () => (await import('@codemirror/lang-javascript')).javascript({ jsx: true, typescript: true })],
  [/\.(json|jsonc|ipynb|webmanifest)$/, async () => (await import('@codemirror/lang-json')).json()],
  [/\.(py|pyi|pyw)$/, async () => (await import('@codemirror/lang-python')).python()],
  [/\.(html?|vue|svelte|xml|svg)$/, async () => (await import('@codemirror/lang-html')).html()],
  [/\.(css|scss|less)$/, async () => (await import('@codemirror/lang-css')).css()],
  [/\.(md|markdown|mdx)$/, async () => (await import('@codemirror/lang-markdown')).markdown()],
  [/\.ya?ml$/, async () => (await import('@codemirror/lang-yaml')).yaml()],
  [/(\.(sh|bash|zsh|profile)|rc|Procfile)$/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/shell')).shell)],
  [/(\.go|go\.(mod|sum))$/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/go')).go)],
  [/\.rs$/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/rust')).rust)],
  [/\.rb$|Gemfile$|Rakefile$/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/ruby')).ruby)],
  [/\.toml$/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/toml')).toml)],
  [/Dockerfile/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/dockerfile')).dockerFile)],
  [/\.(c|h|cc|cpp|hpp|java|kt|cs|swift)$/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/clike')).cpp)],
  [/\.(diff|patch)$/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/diff')).diff)],
  [/\.(ini|conf|cfg|env|properties|service)$|^\.env/, async () => StreamLanguage.define((await import('@codemirror/legacy-modes/mode/properties')).properties)],
];

/** A language is not for more than this, in bytes. */
const coloured = 512 << 10;

const byteOrderMark = '\ufeff';

/** The line that is meant. */
const mark = StateEffect.define<number>();
const marked = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(set, tr) {
    for (const e of tr.effects) {
      if (!e.is(mark)) continue;
      const b = new RangeSetBuilder<Decoration>();
      if (e.value > 0 && e.value <= tr.state.doc.lines) {
        const { from } = tr.state.doc.line(e.value);
        b.add(from, from, Decoration.line({ class: 'cm-marked' }));
      }
      return b.finish();
    }
    return set.map(tr.changes);
  },
  provide: (f) => EditorView.decorations.from(f),
});

export interface Wishes {
  name: string;
  text: string;
  writable: boolean;
  line: number;
  /** What is there is another text than before. */
  changed: () => void;
  save: () => void;
  /** A line's number was pressed. */
  pick: (line: number) => void;
}

export class Editor {
  readonly #view: EditorView;
  readonly #compared = new Compartment();
  /** The byte order mark of the text, which stays at its beginning and is not shown; or empty. */
  readonly #mark: string;
  #turn = 0;

  constructor(host: HTMLElement, w: Wishes) {
    this.#mark = w.text.startsWith(byteOrderMark) ? byteOrderMark : '';
    const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
    root.replaceChildren();
    const language = new Compartment();
    this.#view = new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: w.text.slice(this.#mark.length),
        extensions: [
          // Ends of lines stay what they are: CR LF alone is one kind, all else is not touched.
          EditorState.lineSeparator.of(/\r\n/.test(w.text) && !/(^|[^\r])\n|\r(?!\n)/.test(w.text) ? '\r\n' : '\n'),
          EditorState.readOnly.of(!w.writable), EditorView.editable.of(w.writable), EditorView.contentAttributes.of({ 'aria-label': `Content of ${w.name}`, ...(w.writable ? {} : { tabindex: '0' }) }),
          lineNumbers({ domEventHandlers: { mousedown: (view, block) => (w.pick(view.state.doc.lineAt(block.from).number), true) } }),
          highlightActiveLine(), highlightActiveLineGutter(), highlightSpecialChars(), drawSelection(), history(), indentOnInput(), bracketMatching(), highlightSelectionMatches(),
          search({ top: true }), syntaxHighlighting(colours), theme, marked, language.of([]), this.#compared.of([]),
          keymap.of([{ key: 'Mod-s', run: () => (w.save(), true), preventDefault: true }, ...searchKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
          EditorView.updateListener.of((u) => u.docChanged && w.changed()),
        ],
      }),
    });
    const found = w.text.length <= coloured && languages.find(([name]) => name.test(w.name));
    if (found) void found[1]().then((l) => this.#view.dispatch({ effects: language.reconfigure(l) }), () => undefined);
    if (w.line) this.show(w.line);
  }

  get text(): string {
    return this.#mark + this.#view.state.sliceDoc();
  }

  /** Marks a line, and shows it. */
  show(line: number): void {
    const { doc } = this.#view.state;
    if (line > doc.lines) line = doc.lines;
    const at = line > 0 ? doc.line(line).from : 0;
    this.#view.dispatch({ effects: [mark.of(line), ...(line > 0 ? [EditorView.scrollIntoView(at, { y: 'center' })] : [])] });
  }

  /** Shows what differs from another text, or, without one, the text alone. */
  async compare(original?: string): Promise<void> {
    const turn = ++this.#turn;
    const view = this.#view;
    if (original === undefined) return view.dispatch({ effects: this.#compared.reconfigure([]) });
    if (this.#mark && original.startsWith(this.#mark)) original = original.slice(this.#mark.length);
    const { unifiedMergeView } = await import('@codemirror/merge');
    if (turn !== this.#turn) return; // something else is wanted by now
    const shown = unifiedMergeView({ original: view.state.toText(original), mergeControls: false, syntaxHighlightDeletions: false, collapseUnchanged: { margin: 3, minSize: 8 } });
    view.dispatch({ effects: this.#compared.reconfigure(shown) });
  }

  close(): void {
    this.#turn++;
    this.#view.destroy();
  }
}
