package page

import "time"

// timing are the times of a Page. Tests shorten them.
type timing struct {
	wait      time.Duration // from the browser's start until a tab must have connected
	open      time.Duration // for the start of the browser
	handshake time.Duration // from a connection until the tab's tools are known
	ping      time.Duration // between two pings of a tab
	pong      time.Duration // for a tab's answer to a ping, if it sends nothing else
	write     time.Duration // for one message to a tab that reads slowly
	closing   time.Duration // for a tab's part in the end of a connection
	call      time.Duration // for one look at a cell that runs
	poll      time.Duration // between the first two looks at a cell that runs
	maxPoll   time.Duration // between two later looks
	follow    time.Duration // for which a cell is looked at: a VM of Colab lives no longer
	unread    time.Duration // for which the end of a run waits for its caller
}

// defaultTiming waits as long as Google's own server does. Browsers answer pings even for a
// page whose scripts they have suspended, so a tab without an answer is gone.
var defaultTiming = timing{
	wait: time.Minute, open: 30 * time.Second, handshake: 30 * time.Second,
	ping: 20 * time.Second, pong: 20 * time.Second, write: 30 * time.Second, closing: time.Second,
	call: time.Minute, poll: time.Second, maxPoll: 5 * time.Second, follow: 24 * time.Hour, unread: 10 * time.Minute,
}
