"""What models are trained for."""

from tacit.training.losses.loss import USUAL as USUAL
from tacit.training.losses.loss import Loss as Loss
from tacit.training.losses.loss import LossFunction as LossFunction
from tacit.training.losses.loss import Outcomes as Outcomes
from tacit.training.losses.loss import check_loss as check_loss
from tacit.training.losses.loss import checked as checked
from tacit.training.losses.loss import fit_loss as fit_loss
from tacit.training.losses.loss import hits as hits
from tacit.training.losses.loss import is_regression as is_regression
from tacit.training.losses.loss import losses as losses
