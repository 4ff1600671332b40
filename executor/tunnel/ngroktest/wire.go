package ngroktest

import (
	"encoding/json"
	"fmt"

	"golang.ngrok.com/muxado/v2"
)

// Stream types of the agent protocol: a call is one stream, its type first.
const (
	callAuth       muxado.StreamType = 0
	callBind       muxado.StreamType = 1
	callUnbind     muxado.StreamType = 2
	callProxy      muxado.StreamType = 3
	callSrvInfo    muxado.StreamType = 8
	callStopTunnel muxado.StreamType = 9
)

// Auth is an agent's login.
type Auth struct {
	ClientID string `json:"ClientId"` // set when the agent reconnects
	Extra    struct {
		Authtoken, Metadata, Cookie, Hostname, UserAgent string
	}
}

type authAnswer struct {
	Version  string
	ClientID string `json:"ClientId"`
	Error    string
	Extra    struct {
		Version, Region, Cookie, AccountName, PlanName string
	}
}

// Bind is an agent's request for an endpoint.
type Bind struct {
	ID    string `json:"Id"` // set when the agent requests it again
	Proto string
	Opts  json.RawMessage
	Extra struct {
		Token, Metadata, Name, Description string
	}
	Raw json.RawMessage `json:"-"` // the request as received
}

// requestedURL returns the requested address. Empty leaves the choice to the edge.
func (b Bind) requestedURL() string {
	var opts struct{ URL string }
	if json.Unmarshal(b.Opts, &opts) != nil {
		return ""
	}
	return opts.URL
}

type bindAnswer struct {
	ID    string `json:"Id"`
	URL   string
	Proto string
	Opts  json.RawMessage
	Error string
	Extra struct{ Token string }
}

type unbind struct {
	ID string `json:"Id"`
}

type proxyHeader struct {
	ID         string `json:"Id"`
	ClientAddr string
	Proto      string
	EdgeType   string
}

type stopTunnel struct {
	ID        string `json:"Id"`
	Message   string
	ErrorCode string
}

// refusal returns an error text in ngrok's form: words, which quote a refused token,
// and the code on its own line.
func refusal(code, words string) string {
	return fmt.Sprintf("%s\r\n\r\n%s\r\n", words, code)
}
