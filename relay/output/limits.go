package output

// Limits bound the outputs of one cell. What is beyond a bound is left out, and an output at
// its place says so.
type Limits struct {
	Text     int   // bytes of stdout and stderr together; the middle is left out
	Outputs  int   // outputs; the middle is left out
	Payload  int64 // bytes of one picture or other payload
	Payloads int64 // bytes of all payloads and exceptions, as a notebook has them; the newest are left out
	Saved    int64 // bytes of the file that has the whole text
	// All bounds the payloads of all cells of a Collector together, in bytes; 0 does not. What
	// would exceed it, because a cell updates the displays of others, is left out.
	All int64
	// Kept bounds all cells of a Collector together, in bytes. Beyond it the oldest are no longer
	// changed by update_display_data from other cells.
	Kept int64
}

// ForNotebooks are the limits of outputs that are written into somebody's notebook.
var ForNotebooks = Limits{
	Text: 1 << 20, Outputs: 10_000, Payload: 10 << 20, Payloads: 32 << 20, Saved: 256 << 20, All: 64 << 20, Kept: 16 << 20,
}

// ForDocuments are the limits of outputs in a document of their own, which should have all that
// the executor kept of a run.
var ForDocuments = Limits{
	Text: 64 << 20, Outputs: 100_000, Payload: 32 << 20, Payloads: 256 << 20, Saved: 0, Kept: 512 << 20,
}

const (
	// maxUpdated bounds the displays of one id that an update changes: the newest.
	maxUpdated = 100
	// maxDepth bounds JSON payloads, because each level indents all that is in it.
	maxDepth = 32
	// maxKeys bounds the keys of one object in a JSON payload.
	maxKeys = 65_536
	// maxLaidOut is up to how many bytes a JSON payload has a line for each of its values, as
	// nbformat writes it, unless it is then more than layout times as long.
	maxLaidOut    = 256 << 10
	alwaysLaidOut = 4 << 10
	layout        = 10
	// maxMetadata bounds the metadata of a display. An executor sends no longer ones.
	maxMetadata = 128 << 10
	// freePayloads is how many bytes of payloads a Collector has without a turn, and freeHeld how
	// many of all that it has.
	freePayloads = 1 << 20
	freeHeld     = 2 << 20
	// maxWidgets bounds the states of widgets, in bytes. An executor keeps no more of one kernel.
	maxWidgets = 16 << 20
	// maxTries bounds how often a payload is requested that cannot be had.
	maxTries = 3
	// minBlob is the least that a payload outside its event counts: executors send smaller ones in
	// the event. So the number of requests for one cell is bounded.
	minBlob = 64 << 10
	// perOutput is what each output counts besides its content.
	perOutput = 512
)
