// xterm.js writes rules into style elements, and style attributes, which the page's
// policy refuses. This document gives it elements that do the same by ways that
// are no injection: constructed style sheets, and the style object.

export function strictDocument(): Document {
  const create = (tag: string, options?: ElementCreationOptions): HTMLElement => {
    // An empty style element is refused, too.
    const el = document.createElement(tag === 'style' ? 'template' : tag, options);
    if (tag === 'style') sheet(el);
    const set = el.setAttribute.bind(el);
    el.setAttribute = (name: string, value: string) => {
      if (name === 'style') el.style.cssText = value;
      else set(name, value);
    };
    return el;
  };
  return new Proxy(document, {
    get(target, name) {
      if (name === 'createElement') return create;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === 'function' ? (value as (...a: unknown[]) => unknown).bind(target) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
}

function sheet(el: HTMLElement): void {
  const rules = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, rules];
  Object.defineProperty(el, 'textContent', { set: (text: string) => rules.replaceSync(text), get: () => '' });
  Object.defineProperty(el, 'sheet', { get: () => rules });
  const remove = el.remove.bind(el);
  el.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== rules);
    remove();
  };
}
