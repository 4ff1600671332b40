// Package dataflow tells which cells of a notebook depend on which: what to skip after a
// failure (Poison) and what to run again so that the kernel agrees with the notebook (Sync).
//
// The kernel's own Python reads the cells, because only it knows its syntax (Analyse); it
// parses and runs nothing of them. All else here is pure. dataflow must not know files,
// records or how cells are run. Start reading at Facts, then Poison.Skips and Sync.
package dataflow

// Facts are what Python's syntax tree says of one cell. They can be stored as JSON, and
// depend on the cell's source only. What a function does that another cell defines is
// resolved by Poison and Sync, which see the cells in order.
type Facts struct {
	Use
	// Stores are bound by every run that succeeds, so that older values no longer matter.
	Stores []string `json:"stores,omitempty"`
	// Imports are names that an import binds.
	Imports []string `json:"imports,omitempty"`
	// Functions are the functions and classes that the cell defines, by name.
	Functions map[string]Function `json:"functions,omitempty"`
	// Origins tell what the values of names were made from.
	Origins map[string]Origin `json:"origins,omitempty"`
	// Digest is of the syntax tree, so that comments and formatting do not count, or of the
	// text where that can't be parsed: 64 hexadecimal digits.
	Digest string `json:"digest"`
	// Problem says why nothing else is known of the cell; empty if it was understood. Such a
	// cell may read and write everything.
	Problem string `json:"problem,omitempty"`
	// Passing: Problem lies in all cells of the call, such as their number, and not in this one.
	// Another call may know more, so such facts are not to be stored.
	Passing bool `json:"passing,omitempty"`
	// PageCalls are calls that need Colab's page in a browser, such as drive.mount.
	PageCalls []string `json:"page_calls,omitempty"`
	// Accelerators are what the cell asks for: "gpu" or "tpu".
	Accelerators []string `json:"accelerators,omitempty"`
}

// Use is what code does to the names around it when it runs.
type Use struct {
	// Reads are read before the code has certainly bound them.
	Reads []string `json:"reads,omitempty"`
	// MayStore may be bound or deleted. In Facts it contains Stores.
	MayStore []string `json:"may_store,omitempty"`
	// Changes are names whose values may change in place.
	Changes []string `json:"changes,omitempty"`
	// Methods are names of which a method is called for its effect. That changes the value
	// unless the name is a module.
	Methods []string `json:"methods,omitempty"`
	// Calls are the names that are called.
	Calls map[string]Call `json:"calls,omitempty"`
	// OpaqueRead and OpaqueWrite: it may read or write anything, as exec and !command may.
	OpaqueRead  bool `json:"opaque_read,omitempty"`
	OpaqueWrite bool `json:"opaque_write,omitempty"`
}

// Call is how a name is called.
type Call struct {
	// Bound are names that the cell has certainly bound before each use of the called name.
	Bound []string `json:"bound,omitempty"`
	// Passed are the names whose values it gets.
	Passed []string `json:"passed,omitempty"`
	// Bare: a result is not used, so the call is made for its effect.
	Bare bool `json:"bare,omitempty"`
}

// Function is what a function does when it is called; of a class, what its methods do.
type Function struct {
	Use
	// ChangesArguments: it may change the values that it gets.
	ChangesArguments bool `json:"changes_arguments,omitempty"`
	// ChangesSelf: methods may change their object.
	ChangesSelf bool `json:"changes_self,omitempty"`
	// Lasting: what it returns may call it, as instances of a class, generators and inner
	// functions do.
	Lasting bool `json:"lasting,omitempty"`
}

// Origin is what the value of a name was made from, as names.
type Origin struct {
	Same   []string `json:"same,omitempty"`   // the value, or the value it is part of or contains
	Passed []string `json:"passed,omitempty"` // arguments of the call that made it
	Called []string `json:"called,omitempty"` // what was called
}

// known reports whether anything is known of the cell.
func (f *Facts) known() bool { return f != nil && f.Problem == "" }
