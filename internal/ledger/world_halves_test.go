package ledger

import "slices"

// Commands that cut what is usually one step in two: the histories that the model check prints need them.

// halfMeta lets the store decide about an operation, or lets its answer arrive.
func (w *world) halfMeta(op *metaOp, told bool) {
	if op.client.p != nil { // a publish is one transaction
		if told {
			w.forgetWant(op)
			w.publishNow(op)
		}
		return
	}
	if !told {
		op.answer = &Event{Kind: EvGone}
		switch {
		case w.gone:
		case op.read:
			op.answer = &Event{Kind: EvRead, Record: w.record, Version: w.version}
		case w.apply(op):
			op.answer = &Event{Kind: EvWritten, Version: w.version}
		default:
			op.answer = &Event{Kind: EvConflict}
		}
		return
	}
	if op.answer == nil {
		w.say("the store has not decided about %s", op.client.name)
		return
	}
	w.forgetWant(op)
	w.step(op.client, *op.answer)
}

func (w *world) forgetWant(op *metaOp) {
	i := slices.Index(w.wants, op)
	w.wants = slices.Delete(w.wants, i, i+1)
}

// landOf lets the oldest late write of a client land.
func (w *world) landOf(c *simClient) {
	for i, op := range w.late {
		if op.client == c {
			w.late = append(w.late[:i:i], w.late[i+1:]...)
			if !w.apply(op) {
				w.say("%s's write at v%d comes too late", c.name, op.act.Version)
			}
			return
		}
	}
	w.say("no write of %s is late", c.name)
}

// start ends a wipe that erase began.
func (w *world) start(b *simBookie) {
	b.down = false
	if !w.gone && w.record.Names(b.id) {
		b.mem.Lose()
		b.disk = *b.mem.Clone()
	}
}
