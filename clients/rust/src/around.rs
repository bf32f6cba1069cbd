//! Which holds the runs around a request have, of whichever client.

use std::future::Future;
use std::sync::Arc;

use crate::limits::MAX_DECLARED;
use crate::{AcquireOptions, Hold};

tokio::task_local! {
    static AROUND: Vec<Arc<Hold>>;
}

fn kept() -> Vec<Arc<Hold>> {
    let mut holds = AROUND.try_with(Clone::clone).unwrap_or_default();
    holds.retain(|hold| hold.is_safe());
    holds
}

/// The body of a run, whose requests declare the hold. What it spawns does not: the run need not wait for it.
pub(crate) fn inside<F: Future>(hold: &Arc<Hold>, body: F) -> impl Future<Output = F::Output> {
    let mut holds = kept();
    holds.push(hold.clone());
    AROUND.scope(holds, body)
}

/// Adds the innermost holds around a request to what it declares, as far as there is room.
pub(crate) fn declare(options: &mut AcquireOptions) {
    let holds = kept();
    let around = holds.iter().map(|hold| hold.id()).filter(|id| options.id.as_deref() != Some(id));
    let mut more: Vec<String> =
        around.filter(|&id| options.declared.iter().all(|own| own != id)).map(str::to_owned).collect();
    let room = MAX_DECLARED.saturating_sub(options.declared.len());
    options.declared.extend(more.split_off(more.len().saturating_sub(room)));
}
