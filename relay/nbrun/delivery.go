package nbrun

import (
	"os"
	"strings"
	"time"

	"colabrelay/relay/notebook"
	"colabrelay/shared/bounded"
)

// Delivered records that the caller passes on how the run ended. Until then the same call gives the
// same answer, and runs nothing: the relay may have been killed before it could answer, and the
// cells would run twice. It does nothing for a run that has not ended.
func (r *Run) Delivered() error {
	if r.spec.DryRun || !r.record.Run.Status.Finished() {
		return nil
	}
	return os.WriteFile(deliveredPath(r.Path()), []byte(r.record.Run.ID), 0o600)
}

// deliveredPath is the file beside a record that has the id of the last run whose end was delivered.
func deliveredPath(recordPath string) string {
	return strings.TrimSuffix(recordPath, ".json") + ".delivered"
}

// mayHaveLostAnswer reports whether the recorded run is the one that is asked for, of the same code,
// and has ended without an answer that said so.
func (r *Run) mayHaveLostAnswer(d *notebook.Document) bool {
	old := &r.record.Run
	if r.spec.DryRun || !old.Confirms || !old.Status.Finished() || old.FinishedAt == nil || old.Spec.identity() != r.spec.identity() {
		return false
	}
	id, err := bounded.ReadFile(deliveredPath(r.Path()), maxDelivered)
	return (err != nil || string(id) != old.ID) && newView(d, r.values).digest == old.View
}

// maxDelivered is more than the id of a run, in bytes.
const maxDelivered = 100

// repeatEnd answers again with how the run ended. The killed relay may not have written the report.
func (a *advance) repeatEnd() (_ Outcome, err error) {
	a.addNote("this run ended at %s, and the answer to that call may be lost: nothing ran again; call again to run the cells again", a.run().FinishedAt.Format(time.RFC3339))
	a.reports, err = writeReport(a.Path(), a.record)
	return a.outcome(), err
}
