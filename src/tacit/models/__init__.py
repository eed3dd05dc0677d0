"""The networks that the recipes train, and what makes other people's networks trainable in private."""

from tacit.models.norm_cnn import norm_cnn as norm_cnn
from tacit.models.normalisation import replace_batchnorm as replace_batchnorm
from tacit.models.recurrent import PrivateGRU as PrivateGRU
from tacit.models.recurrent import PrivateLSTM as PrivateLSTM
from tacit.models.recurrent import PrivateRNN as PrivateRNN
from tacit.models.recurrent import replace_recurrent as replace_recurrent
from tacit.models.registry import MODELS as MODELS
from tacit.models.registry import build as build
from tacit.models.registry import default_model as default_model
from tacit.models.scattering import Scattering as Scattering
from tacit.models.scatternet import balanced_scattering as balanced_scattering
from tacit.models.scatternet import scatter_cnn as scatter_cnn
from tacit.models.scatternet import scatter_features as scatter_features
from tacit.models.scatternet import scatter_linear as scatter_linear
from tacit.models.sequences import SequenceReader as SequenceReader
from tacit.models.simple import linear as linear
from tacit.models.simple import mlp as mlp
from tacit.models.simple import tanh_cnn as tanh_cnn
from tacit.models.tabular import TableColumn as TableColumn
from tacit.models.tabular import table_mlp as table_mlp
from tacit.models.upright import Upright as Upright
from tacit.models.wide_resnet import wide_resnet as wide_resnet
