package guard

// automaton finds any of many texts in one pass over another, as Aho and Corasick do.
type automaton struct {
	root  [256]int32
	nodes []node
}

// node is the beginning of a text that is looked for. Its children are a list.
type node struct {
	child, next int32 // the first child; the next child of the same parent
	fail        int32 // the longest end of this beginning that is one, too
	depth       int32
	id          int32 // of the text that ends here, or -1
	ends        int32 // the node of the longest text that ends here, or 0
	c           byte
}

func newAutomaton() *automaton { return &automaton{nodes: []node{{id: -1}}} }

// add adds a text, and returns its id: of two that are the same the first has one.
func (a *automaton) add(text []byte, id int) int {
	var at int32
	for _, c := range text {
		to := a.child(at, c)
		if to == 0 {
			to = int32(len(a.nodes))
			a.nodes = append(a.nodes, node{next: a.nodes[at].child, depth: a.nodes[at].depth + 1, id: -1, c: c})
			a.nodes[at].child = to
			if at == 0 {
				a.root[c] = to
			}
		}
		at = to
	}
	if a.nodes[at].id < 0 {
		a.nodes[at].id = int32(id)
	}
	return int(a.nodes[at].id)
}

func (a *automaton) child(at int32, c byte) int32 {
	if at == 0 {
		return a.root[c]
	}
	for to := a.nodes[at].child; to != 0; to = a.nodes[to].next {
		if a.nodes[to].c == c {
			return to
		}
	}
	return 0
}

// link makes the automaton ready for step.
func (a *automaton) link() {
	var queue []int32
	for to := a.nodes[0].child; to != 0; to = a.nodes[to].next {
		queue = append(queue, to)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		n := &a.nodes[at]
		if n.ends = a.nodes[n.fail].ends; n.id >= 0 {
			n.ends = at
		}
		for to := n.child; to != 0; to = a.nodes[to].next {
			a.nodes[to].fail = a.step(n.fail, a.nodes[to].c)
			queue = append(queue, to)
		}
	}
}

// step returns the node of the longest beginning that ends with c.
func (a *automaton) step(at int32, c byte) int32 {
	for {
		if at == 0 {
			return a.root[c]
		}
		if to := a.child(at, c); to != 0 {
			return to
		}
		at = a.nodes[at].fail
	}
}

func (a *automaton) empty() bool { return len(a.nodes) == 1 }
