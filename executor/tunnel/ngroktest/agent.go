package ngroktest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"golang.ngrok.com/muxado/v2"
)

// agent is one session with an agent.
type agent struct {
	edge    *Edge
	session *muxado.Heartbeat
}

func (e *Edge) acceptAgents() {
	for {
		conn, err := e.listener.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.conns[conn] = true
		e.mu.Unlock()
		e.work.Go(func() { e.serveAgent(conn) })
	}
}

func (e *Edge) serveAgent(conn net.Conn) {
	typed := muxado.NewTypedStreamSession(muxado.Server(conn, nil))
	a := &agent{edge: e, session: muxado.NewHeartbeat(typed, func(time.Duration, bool) {}, nil)}
	defer func() {
		a.session.Close()
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.conns, conn)
		for _, p := range e.publics {
			if p.agent == a {
				p.agent = nil
			}
		}
	}()
	for {
		stream, err := a.session.AcceptTypedStream()
		if err != nil {
			return
		}
		e.work.Go(func() { a.call(stream) })
	}
}

// call responds to one request of the agent.
func (a *agent) call(stream muxado.TypedStream) {
	defer stream.Close()
	var raw json.RawMessage
	if json.NewDecoder(stream).Decode(&raw) != nil {
		return
	}
	switch stream.StreamType() {
	case callAuth:
		a.reply(stream, a.auth(raw))
	case callBind:
		a.reply(stream, a.bind(raw))
	case callUnbind:
		a.reply(stream, a.unbind(raw))
	case callSrvInfo:
		a.reply(stream, struct{ Region string }{"loopback"})
	}
}

// reply ignores a failed write: the agent has disconnected, and serveAgent notices.
func (*agent) reply(w io.Writer, answer any) { _ = json.NewEncoder(w).Encode(answer) }

func (a *agent) auth(raw json.RawMessage) authAnswer {
	var request Auth
	if err := json.Unmarshal(raw, &request); err != nil {
		return authAnswer{Error: err.Error()}
	}
	a.edge.mu.Lock()
	a.edge.auths = append(a.edge.auths, request)
	code := a.edge.refuseToken
	a.edge.mu.Unlock()
	if code != "" {
		return authAnswer{Error: refusal(code, "The authtoken is refused.\r\nYour authtoken: "+request.Extra.Authtoken)}
	}
	answer := authAnswer{Version: "3", ClientID: request.ClientID}
	if answer.ClientID == "" {
		answer.ClientID = a.edge.next("client")
	}
	answer.Extra.Version, answer.Extra.Region = "loopback", "loopback"
	answer.Extra.Cookie = "cookie of " + answer.ClientID
	answer.Extra.AccountName, answer.Extra.PlanName = "test", "Free"
	return answer
}

func (e *Edge) next(what string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.serial++
	return fmt.Sprintf("%s-%d", what, e.serial)
}

func (a *agent) bind(raw json.RawMessage) bindAnswer {
	var request Bind
	if err := json.Unmarshal(raw, &request); err != nil {
		return bindAnswer{Error: err.Error()}
	}
	request.Raw = raw
	a.edge.mu.Lock()
	a.edge.binds = append(a.edge.binds, request)
	a.edge.mu.Unlock()
	id := request.ID
	if id == "" {
		id = a.edge.next("bind")
	}
	p, err := a.edge.publish(a, id, request)
	if err != nil {
		return bindAnswer{Error: err.Error()}
	}
	answer := bindAnswer{ID: id, URL: p.url, Proto: request.Proto, Opts: request.Opts}
	answer.Extra.Token = p.token
	return answer
}

func (a *agent) unbind(raw json.RawMessage) struct{ Error string } {
	var request unbind
	if err := json.Unmarshal(raw, &request); err != nil {
		return struct{ Error string }{err.Error()}
	}
	a.edge.mu.Lock()
	defer a.edge.mu.Unlock()
	for _, p := range a.edge.publics {
		if p.agent == a && p.bindID == request.ID {
			p.agent = nil
		}
	}
	return struct{ Error string }{}
}

// stopTunnel notifies the agent that an endpoint was stopped. There is no response.
func (a *agent) stopTunnel(id, code, message string) {
	stream, err := a.session.OpenTypedStream(callStopTunnel)
	if err != nil {
		return
	}
	defer stream.Close()
	a.reply(stream, stopTunnel{ID: id, Message: message, ErrorCode: code})
}

// proxy opens the stream for one visitor's HTTP request.
func (a *agent) proxy(id, visitor string) (net.Conn, error) {
	stream, err := a.session.OpenTypedStream(callProxy)
	if err != nil {
		return nil, err
	}
	header, err := json.Marshal(proxyHeader{ID: id, ClientAddr: visitor, Proto: "https", EdgeType: "3"})
	if err != nil {
		return nil, err
	}
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	if _, err := stream.Write(append(length, header...)); err != nil {
		return nil, err
	}
	return stream, nil
}
